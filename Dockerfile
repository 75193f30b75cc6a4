# An image that runs a script with tfmini:
#     docker build -t registry.example/digits .
#     docker push registry.example/digits
# Put your own script and its dependencies on top: FROM this image, COPY script.py /app/, RUN pip install ….
FROM python:3.12-slim
WORKDIR /app
COPY pyproject.toml README.md /src/
COPY tfmini /src/tfmini
RUN pip install --no-cache-dir '/src[examples]' && rm -r /src
COPY examples /app/examples
# A process that is number 1 of a container ignores signals without a handler; tini passes them on.
RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends tini && rm -rf /var/lib/apt/lists/*
ENTRYPOINT ["tini", "--", "tfmini"]
