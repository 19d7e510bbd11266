"""Trackers: callbacks that keep a run in TensorBoard, Weights & Biases or MLflow."""

from rfa.lab.tracking.find import find_tracker
from rfa.lab.tracking.mlflow import MLflow
from rfa.lab.tracking.tensorboard import TensorBoard
from rfa.lab.tracking.tracker import Tracker, TrackingError
from rfa.lab.tracking.wandb import WandB

__all__ = ["MLflow", "TensorBoard", "Tracker", "TrackingError", "WandB", "find_tracker"]
