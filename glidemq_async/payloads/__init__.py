"""Payloads as bytes: serializers, extension types and codecs."""
