"""Names in SavedModels (``tf.saved_model.constants``, ``signature_constants``, ``tag_constants``)."""

from __future__ import annotations

from tfmini.export import export_names

ASSETS_DIRECTORY = "assets"
ASSETS_KEY = "saved_model_assets"
LEGACY_INIT_OP_KEY = "legacy_init_op"
MAIN_OP_KEY = "saved_model_main_op"
SAVED_MODEL_SCHEMA_VERSION = 1
SAVED_MODEL_FILENAME_PB = "saved_model.pb"
SAVED_MODEL_FILENAME_PBTXT = "saved_model.pbtxt"
VARIABLES_DIRECTORY = "variables"
VARIABLES_FILENAME = "variables"
# Newer versions of TensorFlow write this signature in place of the collection MAIN_OP_KEY.
INIT_OP_SIGNATURE_KEY = "__saved_model_init_op"
TRAIN_OP_SIGNATURE_KEY = "__saved_model_train_op"

DEFAULT_SERVING_SIGNATURE_DEF_KEY = "serving_default"
CLASSIFY_INPUTS = "inputs"
CLASSIFY_METHOD_NAME = "tensorflow/serving/classify"
CLASSIFY_OUTPUT_CLASSES = "classes"
CLASSIFY_OUTPUT_SCORES = "scores"
PREDICT_INPUTS = "inputs"
PREDICT_METHOD_NAME = "tensorflow/serving/predict"
PREDICT_OUTPUTS = "outputs"
REGRESS_INPUTS = "inputs"
REGRESS_METHOD_NAME = "tensorflow/serving/regress"
REGRESS_OUTPUTS = "outputs"

SERVING = "serve"
TRAINING = "train"
GPU = "gpu"
TPU = "tpu"

export_names(
    "tf.saved_model tf.saved_model.constants",
    "ASSETS_DIRECTORY ASSETS_KEY LEGACY_INIT_OP_KEY MAIN_OP_KEY SAVED_MODEL_FILENAME_PB SAVED_MODEL_FILENAME_PBTXT "
    "SAVED_MODEL_SCHEMA_VERSION VARIABLES_DIRECTORY VARIABLES_FILENAME",
)
export_names(
    "tf.saved_model tf.saved_model.signature_constants",
    "CLASSIFY_INPUTS CLASSIFY_METHOD_NAME CLASSIFY_OUTPUT_CLASSES CLASSIFY_OUTPUT_SCORES "
    "DEFAULT_SERVING_SIGNATURE_DEF_KEY PREDICT_INPUTS PREDICT_METHOD_NAME PREDICT_OUTPUTS REGRESS_INPUTS "
    "REGRESS_METHOD_NAME REGRESS_OUTPUTS",
)
export_names("tf.saved_model tf.saved_model.tag_constants", "GPU SERVING TPU TRAINING")
