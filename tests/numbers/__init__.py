"""Reference numbers, which a change that is no change of behavior keeps."""  # noqa: A005
