"""The shape of vllm.model_executor.model_loader.reload: a model accepts weights between these calls."""


def initialize_layerwise_reload(model):
    model.is_loading = True


def finalize_layerwise_reload(model, model_config):
    assert model.is_loading
    model.is_loading = False
