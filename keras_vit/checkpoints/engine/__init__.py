"""The formats: their names for our weights, as tables, and what they tell."""
