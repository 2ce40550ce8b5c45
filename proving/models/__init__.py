"""Trained models that packages ship, pinned and verified, with fitting inputs and what is measured on them."""
