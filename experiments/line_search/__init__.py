"""How much the line search of focal temperature scaling loses against the full grid."""
