"""The functions of glue_bench: the public ones, and those that only the command line calls.

A function here says what it takes and what it gives, and calls the room that does the work. Rooms
are imported when a function is called, so that `import glue_bench` and `glue-bench --help` stay
light.
"""

from glue_bench.api.experiments import (
    demo_file,
    places_of_setting,
    plan,
    progress,
    run,
    slurm_options,
    status,
    write_template,
)
from glue_bench.api.lines import (
    describe,
    describe_evaluation,
    evaluate,
    parse_settings,
    recipe_text,
    recipes,
    write_experiment,
)
from glue_bench.api.models import (
    analyse,
    check_folder,
    check_plugins,
    contract_clauses,
    convert,
    describe_data,
    known_tasks,
    load_plugins,
    save_analysis,
    save_figures,
    variant_options,
)
from glue_bench.api.share import (
    card,
    digest,
    export,
    save_card,
    send_card,
    submission_faults,
    submission_size,
    submit,
    task_titles,
    verify,
)
from glue_bench.api.tables import (
    choose_format,
    compare,
    comparison_text,
    diagnostics_text,
    leaderboard,
    leaderboard_text,
    predictions,
    report,
    show_leaderboard,
    show_table,
    statistics,
    statistics_text,
    table,
    table_text,
    write_text,
)
