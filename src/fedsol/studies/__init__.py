"""Many runs: compare, sweep, search, estimate."""
