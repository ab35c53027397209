"""An HTTP server that classifies images, with a page to try it."""

from keras_vit.serving.server import serve, web_application
from keras_vit.serving.service import Service, ServingLimits

__all__ = [
    "Service",
    "ServingLimits",
    "serve",
    "web_application",
]
