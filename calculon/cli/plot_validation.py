"""``calculon plot validation``: predicted against measured values of the published studies."""

import argparse

from calculon.declarations.named_values import PUBLISHED
from calculon.documents.charts.validation_chart import Pairs, Validation
from calculon.validate.error_summary import score_record
from calculon.validate.library import Library
from calculon.validate.measured_and_predicted import compare


def errors(arguments: argparse.Namespace) -> Validation:
    """Return the pairs for each quantity of each study that was compared."""
    library = Library.at()
    edition = arguments.edition or PUBLISHED
    results = [compare(study, library, edition) for study in library.studies(arguments.study)]
    pairs = [
        Pairs(
            result.study.name,
            one.quantity.name,
            one.quantity.unit,
            one.measured.tolist(),
            one.estimated.tolist(),
            score_record(one.score),
            [row.label for row in one.rows],
        )
        for result in results
        for one in result.own.comparisons
        if one.score
    ]
    return Validation(pairs, edition)
