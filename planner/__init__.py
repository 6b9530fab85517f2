"""The controller's rules as pure transforms: DataFrames or arrays in, the same out."""
