"""Does ``auto`` help where the scores do not come from an image network?"""
