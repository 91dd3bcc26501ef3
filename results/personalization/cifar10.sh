#!/bin/sh
# All personal models on CIFAR-10, Dirichlet 0.1, seed 0, 40 rounds: `results/personalization/cifar10.sh WORK DATA [NAME…]`.
# Some hours on two cores for everything; may be stopped and started again. Names choose rows. The runs go below WORK, what
# they come to into results/personalization/cifar10.
set -eu
work=${1:?"usage: cifar10.sh WORK DATA [NAME...]"} data=${2:?"usage: cifar10.sh WORK DATA [NAME...]"}
shift 2
kept=$(dirname "$0")/cifar10/seed-0
all="fedavg knn-per fedsol fedsol-knn-per fedsol-column fedbabu perfedavg perfedavg-plain local-only fedsol-babu"
for name in ${@:-$all}; do
    run=$name method=""
    case $name in
        local-only) settings="--set algorithm.name=local-only --set algorithm.epochs=50 --set rounds=1" ;;
        fedavg | fedbabu | perfedavg) settings="--set algorithm.name=$name" ;;
        perfedavg-plain) run=perfedavg method="--set steps=plain" settings="--set algorithm.name=perfedavg" ;;
        knn-per) run=fedavg method="--method knn-per" settings="--set algorithm.name=fedavg" ;;
        fedsol) settings="--set algorithm.rho=2.0 --set algorithm.strength=adaptive" ;;
        fedsol-column) settings="--set algorithm.rho=2.0 --set algorithm.strength=adaptive-column" ;;
        fedsol-knn-per) run=fedsol method="--method knn-per" settings="--set algorithm.rho=2.0 --set algorithm.strength=adaptive" ;;
        fedsol-babu) settings="--set algorithm.rho=2.0 --set algorithm.strength=adaptive --set client.trains=body --set algorithm.perturb=body" ;;
        *) echo "$name: is not one of $all" >&2 && exit 2 ;;
    esac
    if [ ! -f "$work/$run/DONE" ]; then
        fedsol run cifar10 --set rounds=40 --set seed=0 $settings --set data.root="$data" ${WORKERS:+--set engine.workers=$WORKERS} \
            --out "$work/$run" --resume
        touch "$work/$run/DONE"
    fi
    fedsol personalize "$work/$run" $method --set data.root="$data" ${WORKERS:+--set engine.workers=$WORKERS} \
        --out "$work/personal/$name" --resume
    mkdir -p "$kept/$name"
    for file in personal.json clients.jsonl environment.json; do cp "$work/personal/$name/$file" "$kept/$name/"; done
done
