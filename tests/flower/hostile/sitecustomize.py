"""Makes every process of a node dishonest: what it sends as its update is spoilt as $HOSTILE says."""

import importlib.abc
import importlib.util
import os
import sys

RECORDS = "fedsol.engines.flower.records"


def spoil(module):
    honest = module.update_records

    def dishonest(update):
        from dataclasses import replace

        def damaged(tensor):
            how = os.environ["HOSTILE"]
            if how == "large":
                return tensor + 1e4
            return tensor * float("nan") if how == "nan" else tensor.flatten()[:1]

        return honest(replace(update, weights={name: damaged(tensor) for name, tensor in update.weights.items()}))

    module.update_records = dishonest


class Finder(importlib.abc.MetaPathFinder):
    """Waits for the module to be imported."""

    def find_spec(self, name, path, target=None):
        if name != RECORDS:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        load = spec.loader.exec_module

        def load_and_spoil(module):
            load(module)
            spoil(module)

        spec.loader.exec_module = load_and_spoil
        return spec


sys.meta_path.insert(0, Finder())
