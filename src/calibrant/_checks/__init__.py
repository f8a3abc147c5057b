"""The one place where values are refused.

Public functions call these once and trust the result from there on. Every message says what was
wrong, what was found and what to do. A check returns the value in the form the library computes
with: half-precision arrays come back as float32, lists as NumPy arrays.
"""

from calibrant._checks.arrays import (
    TWO_COLUMNS as TWO_COLUMNS,
    all_ignored as all_ignored,
    as_array as as_array,
    as_numpy as as_numpy,
    gamma as gamma,
    ignored_label as ignored_label,
    labels as labels,
    logits as logits,
    logits_unseen as logits_unseen,
    positive_gamma as positive_gamma,
    possible_labels as possible_labels,
    probs as probs,
    same_classes as same_classes,
    same_count as same_count,
    same_scores as same_scores,
    same_shape as same_shape,
    sample_weight as sample_weight,
    scores as scores,
    something_to_measure as something_to_measure,
    sum_tolerance as sum_tolerance,
    temperature as temperature,
    truths as truths,
    two_or_more_classes as two_or_more_classes,
    unit_interval as unit_interval,
)
from calibrant._checks.datasets import (
    folder_of as folder_of,
    no_empty_part as no_empty_part,
    shares_of_parts as shares_of_parts,
)
from calibrant._checks.estimators import (
    all_classes_to_train as all_classes_to_train,
    each_row_once as each_row_once,
    enough_to_hold_out as enough_to_hold_out,
    has_output as has_output,
    known_classes as known_classes,
    one_column_a_class as one_column_a_class,
    scores_of_pairs as scores_of_pairs,
)
from calibrant._checks.files import (
    PICTURES as PICTURES,
    ending_of_format as ending_of_format,
    naming as naming,
    one_name_each as one_name_each,
    page_path as page_path,
    picture_path as picture_path,
    some_labels as some_labels,
    some_scores as some_scores,
)
from calibrant._checks.losses import (
    boundaries as boundaries,
    class_weights as class_weights,
    fixed_gamma as fixed_gamma,
    gammas_of_policy as gammas_of_policy,
    ignored_index as ignored_index,
    label_smoothing as label_smoothing,
    length_of_run as length_of_run,
    limits_of_gamma as limits_of_gamma,
    no_other_smoothing as no_other_smoothing,
    one_ignored_index as one_ignored_index,
    one_of_boundaries as one_of_boundaries,
    one_weight_a_class as one_weight_a_class,
    rising_thresholds as rising_thresholds,
    same_shape_targets as same_shape_targets,
    signed_gamma as signed_gamma,
    soft_targets as soft_targets,
    trainer_labels as trainer_labels,
    trainer_loss as trainer_loss,
    validation_output as validation_output,
)
from calibrant._checks.networks import (
    depth_of_resnet as depth_of_resnet,
    embeddings as embeddings,
    images as images,
    inputs_of_size as inputs_of_size,
    last_linear_layer as last_linear_layer,
    layer_size as layer_size,
    logits_of_network as logits_of_network,
    n_classes as n_classes,
    options_of_network as options_of_network,
    share_left_out as share_left_out,
    token_ids as token_ids,
)
from calibrant._checks.training import (
    finite_loss as finite_loss,
    rising_epochs as rising_epochs,
)
from calibrant._checks.values import (
    above_zero as above_zero,
    choice as choice,
    factory as factory,
    given as given,
    importable as importable,
    installed as installed,
    instance as instance,
    level as level,
    no_parameter_missing as no_parameter_missing,
    not_negative as not_negative,
    one_of as one_of,
    option as option,
    parameter as parameter,
    several_of as several_of,
    strength as strength,
    threshold as threshold,
    whole_number as whole_number,
)
