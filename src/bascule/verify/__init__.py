"""Does the service answer correctly?"""
