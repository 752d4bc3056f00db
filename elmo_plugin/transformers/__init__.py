"""
ELMo in Hugging Face transformers: configuration, tokenizer and models. Importing this module
registers them, so that `Auto...` classes and `pipeline` know the model type `elmo`.
"""

import transformers
from transformers.pipelines import PIPELINE_REGISTRY

from elmo_plugin.transformers.models import (
    ElmoConfig,
    ElmoForSequenceClassification,
    ElmoForTokenClassification,
    ElmoModel,
    ElmoPreTrainedModel,
)
from elmo_plugin.transformers.pipeline import ElmoTokenClassificationPipeline
from elmo_plugin.transformers.tokenizer import ElmoTokenizer

__all__ = [
    "ElmoConfig",
    "ElmoForSequenceClassification",
    "ElmoForTokenClassification",
    "ElmoModel",
    "ElmoPreTrainedModel",
    "ElmoTokenClassificationPipeline",
    "ElmoTokenizer",
]

transformers.AutoConfig.register("elmo", ElmoConfig)
transformers.AutoTokenizer.register(ElmoConfig, slow_tokenizer_class=ElmoTokenizer)
transformers.AutoModel.register(ElmoConfig, ElmoModel)
transformers.AutoModelForTokenClassification.register(ElmoConfig, ElmoForTokenClassification)
transformers.AutoModelForSequenceClassification.register(ElmoConfig, ElmoForSequenceClassification)
PIPELINE_REGISTRY.supported_tasks["token-classification"]["impl"] = ElmoTokenClassificationPipeline
