"""Weights by which brokers should share a load: by capacity, or the same for all.

A resource counts by capacity only if that of every broker that shares its load is known.
"""

import numpy as np
import numpy.typing as npt


def broker_weights(capacity: npt.NDArray[np.float64], counted: npt.NDArray[np.bool_]) -> npt.NDArray[np.float64]:
    """Return by (broker, resource) the weight of each share; 0 for brokers that are not `counted`.

    `capacity` is by (broker, resource), NaN if unknown.

    >>> capacity = np.array([[400.0, 8.0], [100.0, np.nan], [np.nan, 8.0]])
    >>> broker_weights(capacity, np.array([True, True, False])).tolist()
    [[400.0, 1.0], [100.0, 1.0], [0.0, 0.0]]
    """
    counts = counted[:, None]
    known = (~np.isnan(capacity) | ~counts).all(axis=0)
    return np.where(counts, np.where(known, np.nan_to_num(capacity), 1.0), 0.0)
