"""Commands about PyTorch models; they need the extra ``torch``."""

from __future__ import annotations

import click

from derive.commands.options import AS_JSON, one_sentence_errors


@click.command("import-torch")
@click.argument("factory", metavar="MODULE:FACTORY")
@AS_JSON
@one_sentence_errors
def import_torch(factory: str, as_json: bool) -> None:
    """Turn a PyTorch layer into an operation graph and print its work as a formula in its sizes.

    FACTORY is a function without arguments in MODULE, which is imported and thereby executed, also from the current
    folder.  It returns (module, inputs): a torch.nn.Module and one example of its inputs, a tuple or a dict by name.
    It may return (module, inputs, sizes), where sizes names numbers of the example, such as {"B": 2, "m": 5}.

    Sizes that are equal in the example are taken to be equal always, so use different numbers.  What the module
    computes as a number of its own, such as a number of heads, stays a number.  One layer is enough: repeat it by hand.

    Forward and backward pass are traced, the latter for all results, parameters and inputs.  Fused attention is
    counted as its contractions.  The counts are checked against PyTorch's at the example; an operation that neither
    side knows is an error.
    """
    from graphs.errors import GraphError

    try:
        import torch  # noqa: F401
    except ImportError:
        raise GraphError("PyTorch is not installed; install the extra: pip install 'rlm-workdepth[torch]'") from None
    from derive.report import safe, to_json
    from derive.torch_import.report import imported, to_data, to_text

    data = to_data(imported(factory))
    click.echo(to_json(safe(data)) if as_json else to_text(data), nl=False)


COMMANDS = (import_torch,)
