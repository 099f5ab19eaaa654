"""From what a model predicts to tokens: search, rules, guards, times."""
