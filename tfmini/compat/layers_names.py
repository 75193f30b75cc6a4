"""Second names of the layers in TensorFlow's private modules ``python.layers.*``."""

from __future__ import annotations

from tfmini.layers import convolutional, normalization, pooling

__all__: list[str] = []

Convolution1D, Convolution2D, Convolution3D = convolutional.Conv1D, convolutional.Conv2D, convolutional.Conv3D
convolution1d, convolution2d, convolution3d = convolutional.conv1d, convolutional.conv2d, convolutional.conv3d
Convolution2DTranspose = Deconvolution2D = Deconv2D = convolutional.Conv2DTranspose
Convolution3DTranspose = Deconvolution3D = Deconv3D = convolutional.Conv3DTranspose
convolution2d_transpose = deconvolution2d = deconv2d = convolutional.conv2d_transpose
convolution3d_transpose = deconvolution3d = deconv3d = convolutional.conv3d_transpose
SeparableConvolution1D = convolutional.SeparableConv1D
SeparableConvolution2D = convolutional.SeparableConv2D
separable_convolution2d = convolutional.separable_conv2d
BatchNorm, batch_norm = normalization.BatchNormalization, normalization.batch_normalization
MaxPool1D, MaxPool2D, MaxPool3D = pooling.MaxPooling1D, pooling.MaxPooling2D, pooling.MaxPooling3D
AvgPool1D, AvgPool2D, AvgPool3D = pooling.AveragePooling1D, pooling.AveragePooling2D, pooling.AveragePooling3D
max_pool2d, avg_pool2d = pooling.max_pooling2d, pooling.average_pooling2d
