"""Provokes real failures of vLLM, Ray, torch and the operating system without a GPU, and keeps their logs."""
