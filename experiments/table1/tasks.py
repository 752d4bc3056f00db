"""Rows of Table 1: tasks with their configs, data and metrics."""

import os
from typing import NamedTuple


class Task(NamedTuple):
    """A task, which is a row of Table 1 of Peters et al. 2018."""

    title: str  # in Table 1
    # The baseline's, without `.jsonnet`, in `configs/` and, for the paper's data, in
    # `training_config/table1/`. The config with ELMo has the suffix `_elmo`.
    config: str
    data: str  # description of the free data set
    folder: str  # of the free data set, below the data folder
    metric: str  # in `metrics.json`, without its prefix `best_validation_` or `test_`
    variables: tuple[str, ...]  # in the environment: paths of the paper's data, used if all are set
    paper: tuple[float, float] | None  # test scores in per cent, baseline and with ELMo
    placements: tuple[str, ...] = ()  # others (Table 3), with configs `{config}_elmo_{placement}`

    @property
    def has_paper_data(self) -> bool:
        """True if environment variables name all files of the paper's data."""
        return bool(self.variables) and all(os.environ.get(name) for name in self.variables)


F1 = "f1-measure-overall"
TASKS: dict[str, Task] = {
    "squad": Task(
        title="SQuAD",
        config="squad",
        data="SQuAD, 3,111 questions; dev: New Wikipedia",
        folder="squad",
        metric="f1",
        variables=("SQUAD_TRAIN_DATA_PATH", "SQUAD_VALIDATION_DATA_PATH"),
        paper=(81.1, 85.8),
    ),
    "snli": Task(
        title="SNLI",
        config="esim",
        data="SNLI, 20,000 pairs",
        folder="snli",
        metric="accuracy",
        variables=("SNLI_TRAIN_DATA_PATH", "SNLI_VALIDATION_DATA_PATH", "SNLI_TEST_DATA_PATH"),
        paper=(88.0, 88.7),
        placements=("output", "both"),
    ),
    "srl": Task(
        title="SRL",
        config="semantic_role_labeler",
        data="English EWT, 9,698 predicates",
        folder="srl_ewt",
        metric=F1,
        variables=("SRL_TRAIN_DATA_PATH", "SRL_VALIDATION_DATA_PATH"),
        paper=(81.4, 84.6),
    ),
    "coref": Task(
        title="Coref",
        config="coref",
        data="OntoGUM",
        folder="coref_ontogum",
        metric="coref_f1",
        variables=(
            "COREF_TRAIN_DATA_PATH",
            "COREF_DEV_DATA_PATH",
            "COREF_TEST_DATA_PATH",
            "TURIAN_PATH",
        ),
        paper=(67.2, 70.4),
    ),
    "ner": Task(
        title="NER",
        config="ner",
        data="WikiGold",
        folder="wikigold",
        metric=F1,
        variables=("NER_TRAIN_DATA_PATH", "NER_TEST_A_PATH", "NER_TEST_B_PATH"),
        paper=(90.15, 92.22),
    ),
    "ner_wnut17": Task(
        title="NER, tweets",
        config="ner_wnut17",
        data="WNUT-17",
        folder="wnut17",
        metric=F1,
        variables=(),
        paper=None,
    ),
    "sst5": Task(
        title="SST-5",
        config="biattentive_classification_network",
        data="SST-5",
        folder="sst5",
        metric="accuracy",
        variables=("SST_TRAIN_DATA_PATH", "SST_VALIDATION_DATA_PATH", "SST_TEST_DATA_PATH"),
        paper=(51.4, 54.7),
        placements=("output", "both"),
    ),
}
