"""An HTTP server that classifies images, with a page to try it."""

from keras_vit.serving.server import serve
from keras_vit.serving.service import Service, ServingLimits
from keras_vit.serving.web_application import web_application

__all__ = [
    "Service",
    "ServingLimits",
    "serve",
    "web_application",
]
