# An image that runs a script with tfmini:
#     docker build -t registry.example/digits .
#     docker push registry.example/digits
# Put your own script and its dependencies on top: FROM this image, COPY script.py /app/; for packages, USER root,
# RUN pip install …, USER 1000:1000.
# By digest, so that nobody can put another image in its place; raise both to get newer fixes.
FROM python:3.12.12-slim-bookworm@sha256:593bd06efe90efa80dc4eee3948be7c0fde4134606dd40d8dd8dbcade98e669c
COPY pyproject.toml README.md /src/
COPY tfmini /src/tfmini
RUN pip install --no-cache-dir '/src[examples]' && rm -r /src
# A process that is number 1 of a container ignores signals without a handler; tini passes them on.
RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends tini && rm -rf /var/lib/apt/lists/*
# The user of the pods (tfmini/launch/manifest.py), whose group may read the key of the cluster.
RUN groupadd --gid 1000 tfmini && useradd --uid 1000 --gid 1000 --create-home tfmini && install -d -o tfmini -g tfmini /app
WORKDIR /app
COPY examples /app/examples
USER 1000:1000
ENTRYPOINT ["tini", "--", "tfmini"]
