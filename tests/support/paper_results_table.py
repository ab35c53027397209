"""Results of arXiv:2010.11929, typed once more from its pages."""

# Mean and spread of three runs: H/14 JFT, L/16 JFT, L/16 I21k, BiT-L.
TABLE_2 = """
ImageNet       88.55±0.04  87.76±0.03  85.30±0.02  87.54±0.02
ImageNet_ReaL  90.72±0.05  90.54±0.03  88.62±0.05  90.54
CIFAR-10       99.50±0.06  99.42±0.03  99.15±0.03  99.37±0.06
CIFAR-100      94.55±0.04  93.90±0.05  93.25±0.05  93.51±0.08
Pets           97.56±0.03  97.32±0.11  94.67±0.15  96.62±0.23
Flowers        99.68±0.02  99.74±0.00  99.61±0.02  99.63±0.03
VTAB           77.63±0.23  76.28±0.46  72.72±0.21  76.29±1.70
"""
COLUMNS_2 = ("ViT-H/14 JFT", "ViT-L/16 JFT", "ViT-L/16 I21k", "BiT-L R152x4")

# Pre-trained on ImageNet, ImageNet-21k and JFT-300M: each B/16, B/32, L/16,
# L/32 and H/14.
TABLE_5 = """
ImageNet      CIFAR-10       98.13 97.77 97.86 97.94 -
ImageNet      CIFAR-100      87.13 86.31 86.35 87.07 -
ImageNet      ImageNet       77.91 73.38 76.53 71.16 -
ImageNet      ImageNet_ReaL  83.57 79.56 82.19 77.83 -
ImageNet      Flowers        89.49 85.43 89.66 86.36 -
ImageNet      Pets           93.81 92.04 93.64 91.35 -
ImageNet-21k  CIFAR-10       98.95 98.79 99.16 99.13 99.27
ImageNet-21k  CIFAR-100      91.67 91.97 93.44 93.04 93.82
ImageNet-21k  ImageNet       83.97 81.28 85.15 80.99 85.13
ImageNet-21k  ImageNet_ReaL  88.35 86.63 88.40 85.65 88.70
ImageNet-21k  Flowers        99.38 99.11 99.61 99.19 99.51
ImageNet-21k  Pets           94.43 93.02 94.73 93.09 94.82
JFT-300M      CIFAR-10       99.00 98.61 99.38 99.19 99.50
JFT-300M      CIFAR-100      91.87 90.49 94.04 92.52 94.55
JFT-300M      ImageNet       84.15 80.73 87.12 84.37 88.04
JFT-300M      ImageNet_ReaL  88.85 86.27 89.99 88.28 90.33
JFT-300M      Flowers        99.56 99.27 99.56 99.45 99.68
JFT-300M      Pets           95.80 93.40 97.11 95.83 97.56
"""
MODELS_5 = ("ViT-B/16", "ViT-B/32", "ViT-L/16", "ViT-L/32", "ViT-H/14")

# R50x1 with Adam and SGD, R152x2 with Adam and SGD.
TABLE_7 = """
ImageNet   77.54 78.24 84.97 84.37
CIFAR-10   97.67 97.46 99.06 99.07
CIFAR-100  86.07 85.17 92.05 91.06
Pets       91.11 91.00 95.37 94.79
Flowers    94.26 92.06 98.62 99.32
Average    89.33 88.79 94.01 93.72
"""
COLUMNS_7 = [(m, o) for m in ("R50x1", "R152x2") for o in ("Adam", "SGD")]

# H/14 JFT, L/16 JFT, L/16 I21k.
TABLE_9 = """
caltech101            95.3 95.4 90.8
cifar100              85.5 81.9 84.1
dtd                   75.2 74.3 74.1
flowers102            99.7 99.7 99.3
pets                  97.2 96.7 92.7
sun397                65.0 63.5 61.0
svhn                  88.9 87.4 80.9
camelyon              83.3 83.6 82.5
eurosat               96.7 96.5 95.6
resisc45              91.4 89.7 85.2
retinopathy           76.6 77.1 75.3
clevr_count           91.7 86.4 70.3
clevr_distance        63.8 63.1 56.1
dmlab                 53.1 49.7 41.9
dsprites_location     79.4 74.5 74.7
dsprites_orientation  63.3 60.5 64.9
kitti_distance        84.5 82.2 79.9
smallnorb_azimuth     33.2 36.2 30.5
smallnorb_elevation   51.2 51.1 41.7
"""


def lines(table):
    """The rows of a table as lists of words."""
    return [line.split() for line in table.strip().splitlines()]
