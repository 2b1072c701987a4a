"""Webhooks: signed messages to other programs, and to the phone of a person who is asked."""
