"""Mean and standard deviation: by hand, with missing values, and for one value or none."""

from fedsol.core.statistics import MeanStd, population_mean_std, sample_mean_std


def test_sample_and_population_differ_in_their_divisor():
    assert sample_mean_std([1.0, None, 3.0]) == MeanStd(2.0, 2**0.5)
    assert population_mean_std([1.0, None, 3.0]) == MeanStd(2.0, 1.0)


def test_one_value_has_no_deviation_and_none_has_no_mean():
    assert sample_mean_std([5.0]) == population_mean_std([5.0]) == (5.0, 0.0)
    assert sample_mean_std([None]) is None
    assert population_mean_std([]) is None
