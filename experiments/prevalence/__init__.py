"""Does EM find the shares of the classes, and is covariate shift refused?"""
