#!/bin/sh
# All personal models on the embedded digits, seeds 0, 1, 2: `results/personalization/digits.sh WORK`. A few minutes on two
# cores; may be stopped and started again. The runs go below WORK, what they come to into results/personalization/digits.
set -eu
work=${1:?"usage: digits.sh WORK"}
kept=$(dirname "$0")/digits
for seed in 0 1 2; do
    one() { # NAME [--set …] -- [options of personalize]: a run, and what clients make of it
        name=$1 && shift
        run=$work/$name-seed-$seed
        settings=""
        while [ $# -gt 0 ] && [ "$1" != -- ]; do settings="$settings $1" && shift; done
        [ $# -eq 0 ] || shift
        from=${from:-$run}
        [ "$from" != "$run" ] || fedsol run --set seed=$seed $settings --out "$run" --resume
        fedsol personalize "$from" "$@" --out "$work/personal/$name-seed-$seed" --resume
        mkdir -p "$kept/seed-$seed/$name"
        for file in personal.json clients.jsonl environment.json; do cp "$work/personal/$name-seed-$seed/$file" "$kept/seed-$seed/$name/"; done
        from=""
    }
    from=""
    one local-only --set algorithm.name=local-only
    one fedavg --set algorithm.name=fedavg
    one perfedavg --set algorithm.name=perfedavg
    from=$work/perfedavg-seed-$seed && one perfedavg-plain -- --set steps=plain
    one fedbabu --set algorithm.name=fedbabu
    from=$work/fedavg-seed-$seed && one knn-per -- --method knn-per
    one fedsol --set algorithm.name=fedsol --set algorithm.strength=adaptive
    one fedsol-column --set algorithm.name=fedsol --set algorithm.strength=adaptive-column
    from=$work/fedsol-seed-$seed && one fedsol-knn-per -- --method knn-per
    one fedsol-babu --set algorithm.name=fedsol --set algorithm.strength=adaptive --set client.trains=body --set algorithm.perturb=body
    one held-out/fedavg --set algorithm.name=fedavg --set data.partition.held_out=0.3 -- --test held-out --set validation=0.5
    from=$work/held-out/fedavg-seed-$seed
    one held-out/knn-per -- --method knn-per --test held-out --set validation=0.5
    from=$work/held-out/fedavg-seed-$seed
    one held-out/knn-per-chosen -- --method knn-per --test held-out --set mixing=chosen
    one held-out/local-only --set algorithm.name=local-only --set data.partition.held_out=0.3 -- --test held-out --set validation=0.5
done
