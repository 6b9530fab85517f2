"""Why: the controller's rules as pure transforms, DataFrames in, DataFrame out."""
