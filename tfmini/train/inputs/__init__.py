"""Input pipelines made of queues, and queue runners."""
