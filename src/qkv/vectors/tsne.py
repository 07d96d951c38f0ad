"""t-SNE (van der Maaten and Hinton 2008), exact, in numpy: a map in which near neighbours of a high-dimensional space stay near.

A few thousand words need no tree (Barnes-Hut), so that a library with compiled code would save little: N words take O(N^2) time
and memory. The layout starts from PCA, as later work recommends (Kobak and Berens 2019), and no random number is drawn.
"""

import numpy as np

from qkv.base.stepwise import Stepwise, complete

MAX_WORDS = 2000
ITERATIONS, EXAGGERATED = 750, 250  # updates in all, and first ones in which neighbours attract each other more
EXAGGERATION = 12.0


def tsne_2d(vectors: np.ndarray, start: np.ndarray, perplexity: float = 30.0, iterations: int = ITERATIONS) -> np.ndarray:
    """Return a map of vectors, scaled to norm 1, in which neighbours are near. (N, D), (N, 2) -> (N, 2)."""
    return complete(tsne_in_steps(vectors, start, perplexity, iterations))


def tsne_in_steps(
    vectors: np.ndarray, start: np.ndarray, perplexity: float = 30.0, iterations: int = ITERATIONS
) -> Stepwise[np.ndarray]:
    """Compute the same, one update in each step."""
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit = np.asarray(vectors / np.where(norms > 0, norms, 1), dtype=np.float32)
    p = joint_probabilities(squared_distances(unit), min(perplexity, (len(unit) - 1) / 3))
    y = np.asarray(start / (start[:, :1].std() or 1) * 1e-4, dtype=np.float32)
    velocity, gains = np.zeros_like(y), np.ones_like(y)
    rate = max(len(y) / EXAGGERATION / 4, 50.0)
    for iteration in range(iterations):
        yield
        early = iteration < EXAGGERATED
        gradient = tsne_gradient(p * EXAGGERATION if early else p, y)
        gains = np.where(np.sign(gradient) != np.sign(velocity), gains + 0.2, gains * 0.8).clip(0.01)
        velocity = (0.5 if early else 0.8) * velocity - rate * gains * gradient
        y = y + velocity
    return y - y.mean(axis=0)


def joint_probabilities(distances: np.ndarray, perplexity: float) -> np.ndarray:
    """Return the probability of each pair to be neighbours, from squared distances; each row has the given perplexity."""
    count = len(distances)
    distances = distances + np.diag(np.full(count, np.inf, distances.dtype))
    distances = distances - distances.min(axis=1, keepdims=True)
    low, high, beta = np.zeros(count), np.full(count, np.inf), np.ones(count)
    for _ in range(64):
        p = np.exp(-distances * beta[:, None])
        p /= p.sum(axis=1, keepdims=True)
        entropy = -np.sum(p * np.log(np.maximum(p, 1e-30)), axis=1)
        flat = entropy > np.log(perplexity)  # too many neighbours count
        low, high = np.where(flat, beta, low), np.where(flat, high, beta)
        beta = np.where(np.isinf(high), beta * 2, (low + np.where(np.isinf(high), low, high)) / 2)
    return np.maximum((p + p.T) / (2 * count), 1e-12).astype(np.float32)


def tsne_gradient(p: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the gradient of the Kullback-Leibler divergence between the neighbours in both spaces. (N, N), (N, 2) -> (N, 2)."""
    near = 1 / (1 + squared_distances(y))
    np.fill_diagonal(near, 0)
    force = (p - near / near.sum()) * near
    return 4 * (force.sum(axis=1, keepdims=True) * y - force @ y)


def squared_distances(points: np.ndarray) -> np.ndarray:
    """Return the squared distances between all points. (N, D) -> (N, N)."""
    squares = np.einsum("nd,nd->n", points, points)
    return np.maximum(squares[:, None] + squares - 2 * points @ points.T, 0)
