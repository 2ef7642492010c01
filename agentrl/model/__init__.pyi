from .adapters import add_adapters as add_adapters
from .at_service import (
    SERVED_FILE as SERVED_FILE,
    check_tokenizer as check_tokenizer,
    read_served as read_served,
    served_tokenizer as served_tokenizer,
)
from .copies import (
    columns_like as columns_like,
    on_device as on_device,
)
from .device import (
    device_named as device_named,
    faster_note as faster_note,
    precision_note as precision_note,
)
from .divided import (
    Declared as Declared,
    DividedModel as DividedModel,
    NamedWeights as NamedWeights,
    StateWeights as StateWeights,
    base_of as base_of,
    shell_of as shell_of,
)
from .fetching import (
    FETCHABLE as FETCHABLE,
    fetch_model as fetch_model,
)
from .forward import Network as Network
from .gguf import convert_gguf as convert_gguf
from .layout import unshared as unshared
from .loading import (
    Loaded as Loaded,
    check_path as check_path,
    check_shape as check_shape,
    check_template as check_template,
    load_model as load_model,
    load_tokenizer as load_tokenizer,
    restore_model as restore_model,
    save_model as save_model,
)
from .logprobs import (
    EntropyMode as EntropyMode,
    TokenStats as TokenStats,
    chunk_for as chunk_for,
    token_stats as token_stats,
)
from .packing import (
    Batch as Batch,
    Sharing as Sharing,
    microbatches as microbatches,
    pack as pack,
)
from .probing import network as network
from .publishing import (
    check_room as check_room,
    export_model as export_model,
    exported_form as exported_form,
    publish as publish,
    publish_adapter as publish_adapter,
    weights_below_adapters as weights_below_adapters,
    whole_weights as whole_weights,
)
from .sections import (
    Lora as Lora,
    ModelConfig as ModelConfig,
    NewModel as NewModel,
)
from .stored_files import (
    check_fits as check_fits,
    check_stored as check_stored,
    hub_cache as hub_cache,
    not_reached as not_reached,
)
from .toy import (
    toy_tokenizer as toy_tokenizer,
    write_toy_model as write_toy_model,
)
from .tree_attention import (
    KernelError as KernelError,
    kernel_failure as kernel_failure,
)
from .weights import (
    Mark as Mark,
    ServedWeights as ServedWeights,
    WeightFolder as WeightFolder,
    Weights as Weights,
)
