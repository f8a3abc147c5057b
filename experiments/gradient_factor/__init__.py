"""The factor between focal and cross-entropy gradients, and the optimum of the focal loss."""
