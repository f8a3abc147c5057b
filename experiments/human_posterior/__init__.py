"""Are the outputs of real networks close to the votes of people (CIFAR-10H)?"""
