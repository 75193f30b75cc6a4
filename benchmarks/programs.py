"""Whole public programs of the time: what a step takes on tfmini and on TensorFlow.

    python benchmarks/programs.py SOURCES --tensorflow1 PYTHON [--tensorflow2 PYTHON --shim SHIM] [PROGRAM …]

SOURCES has a checkout of each repository as OWNER+NAME; nothing of them is part of this one. The Python of TensorFlow
1.15.5 needs what the programs import (scipy, networkx, scikit-learn); SHIM is a folder whose package ``tensorflow`` is
`tensorflow.compat.v1` (`../shared/corpus/shim`). The scripts run as they are, for so many steps: ``Session.run`` is
wrapped to take the time of each call (a callback takes that of each batch of Keras), and a step is the median of the
second half of the calls of the kind that takes most of the time. Each target runs in a process of its own, in turn,
with its default number of threads.
"""

from __future__ import annotations

import argparse
import collections
import os
import runpy
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import types
from pathlib import Path

# This file also runs on Python 3.7, for TensorFlow 1.15.
TARGETS = ("tfmini", "tensorflow1", "tensorflow2")


class Program:
    """A script of a repository, or a graph that is built from its modules.

    Args:
      repository: OWNER+NAME.
      script: a path in the repository, or a function ``script(tf)`` that trains.
      folder: the working directory, in the repository.
      arguments: of the script.
      steps: after how many calls of the longest kind the program ends.
    """

    def __init__(self, repository, script, folder="", arguments=(), steps=60):
        self.repository, self.script, self.folder = repository, script, folder
        self.arguments, self.steps = arguments, steps


# ---- in the process of a program ----------------------------------------------------------------------------------


def bert(tf):
    """Fine-tunes a tiny BERT (two layers of 128, 32 sequences of 64 ids) with its own optimizer."""
    import modeling
    import numpy as np
    import optimization

    ids = np.random.RandomState(0).randint(0, 1000, [32, 64])
    config = modeling.BertConfig(
        vocab_size=1000, hidden_size=128, num_hidden_layers=2, num_attention_heads=2, intermediate_size=512
    )
    fed = tf.placeholder(tf.int32, [32, 64])
    pooled = modeling.BertModel(config, is_training=True, input_ids=fed).get_pooled_output()
    logits = tf.layers.dense(pooled, 2)
    loss = tf.losses.sparse_softmax_cross_entropy(np.arange(32) % 2, logits)
    train = optimization.create_optimizer(loss, 1e-4, 1000, 10, use_tpu=False)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        while True:
            session.run([train, loss], {fed: ids})


def dcgan(tf):
    """Trains the generator and the discriminator of DCGAN's layers on pictures of 28 by 28, 64 at a time."""
    import numpy as np

    sys.modules["cv2"] = types.ModuleType("cv2")  # what shows and saves pictures is not used
    import ops

    images = tf.placeholder(tf.float32, [64, 28, 28, 1])
    noise = tf.placeholder(tf.float32, [64, 100])

    def generator():
        with tf.variable_scope("generator"):
            hidden = tf.nn.relu(ops.batch_norm(name="g0")(ops.linear(noise, 7 * 7 * 64, "h0")))
            hidden = ops.deconv2d(tf.reshape(hidden, [64, 7, 7, 64]), [64, 14, 14, 32], name="h1")
            hidden = tf.nn.relu(ops.batch_norm(name="g1")(hidden))
            return tf.nn.sigmoid(ops.deconv2d(hidden, [64, 28, 28, 1], name="h2"))

    def discriminator(pictures, reuse):
        with tf.variable_scope("discriminator", reuse=reuse):
            hidden = ops.lrelu(ops.conv2d(pictures, 32, name="h0"))
            hidden = ops.lrelu(ops.batch_norm(name="d1")(ops.conv2d(hidden, 64, name="h1")))
            return ops.linear(tf.reshape(hidden, [64, -1]), 1, "h2")

    def loss(logits, label):
        return tf.reduce_mean(
            tf.nn.sigmoid_cross_entropy_with_logits(logits=logits, labels=label * tf.ones_like(logits))
        )

    real, fake = discriminator(images, False), discriminator(generator(), True)
    trains = []
    for scope, value in (("discriminator", loss(real, 1.0) + loss(fake, 0.0)), ("generator", loss(fake, 1.0))):
        variables = tf.trainable_variables(scope)
        trains.append(tf.train.AdamOptimizer(2e-4, beta1=0.5).minimize(value, var_list=variables))
    random = np.random.RandomState(0)
    feeds = {images: random.rand(64, 28, 28, 1), noise: random.rand(64, 100)}
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        while True:
            session.run(trains, feeds)


def nmt(tf):
    """Translates 100 sentences with attention (two layers of 128), by the script's own main, as a module."""
    data = os.path.join(os.getcwd(), "nmt", "testdata", "iwslt15")
    files = [f"--{name}_prefix={data}.tst2013.100" for name in ("train", "dev", "test")]
    sys.argv[1:] = [
        "--src=vi", "--tgt=en", f"--vocab_prefix={data}.vocab.100", *files, f"--out_dir={tempfile.mkdtemp()}",
        "--attention=scaled_luong", "--num_units=128", "--num_layers=2", "--num_train_steps=10000", "--batch_size=32",
        "--steps_per_external_eval=10000", "--src_max_len=30", "--tgt_max_len=30",
    ]  # fmt: skip
    runpy.run_module("nmt.nmt", run_name="__main__")


def pix2pix(tf):
    """Trains pix2pix by its own script on pairs of random pictures, with 16 filters instead of 64."""
    import numpy as np

    pair = np.random.RandomState(0).randint(0, 256, [256, 512, 3]).astype(np.uint8)
    with tf.Graph().as_default(), tf.Session() as session:
        picture = session.run(tf.image.encode_png(pair))
    inputs, results = tempfile.mkdtemp(), tempfile.mkdtemp()
    for index in range(4):
        (Path(inputs) / f"{index}.png").write_bytes(picture)
    sys.argv[1:] = ["--mode=train", f"--output_dir={results}", f"--input_dir={inputs}", "--ngf=16", "--ndf=16",
                    "--max_epochs=1000"]  # fmt: skip
    runpy.run_path("pix2pix.py", run_name="__main__")


def word2vec(tf):
    """Learns embeddings of random words, few of them frequent, by a tutorial's script, made fit for Python 3."""
    import zipfile

    import numpy as np

    words = np.random.RandomState(0).zipf(1.3, 300_000) % 10_000
    named = ["five", "of", "going", "hardware", "american", "britain"]  # those that the script looks for
    text = " ".join((*named * 1000, *map("w{}".format, words)))
    with zipfile.ZipFile("text8.zip", "w") as archive:
        archive.writestr("text8", text)
    script = Path("examples/2_BasicModels/word2vec.py")
    text = script.read_text("utf-8").replace(".lower().split()", ".lower().decode().split()")
    script.write_text(text.replace("xrange", "range"), "utf-8")
    runpy.run_path(str(script), run_name="__main__")


def ddpg(tf):
    """Learns control by the script, with random states and rewards in place of gym's pendulum, after 100 of them."""
    import numpy as np

    random = np.random.RandomState(0)
    space = types.SimpleNamespace
    pendulum = space(observation_space=space(shape=(3,)), action_space=space(shape=(1,), high=np.array([2.0])))
    pendulum.unwrapped, pendulum.seed, pendulum.reset = pendulum, lambda seed: None, lambda: random.randn(3)
    pendulum.step = lambda action: (random.randn(3), random.randn(), False, {})
    sys.modules["gym"] = types.ModuleType("gym")
    sys.modules["gym"].make = lambda name: pendulum
    script = Path("contents/9_Deep_Deterministic_Policy_Gradient_DDPG/DDPG_update2.py")
    script.write_text(script.read_text("utf-8").replace("MEMORY_CAPACITY = 10000", "MEMORY_CAPACITY = 100"), "utf-8")
    runpy.run_path(str(script), run_name="__main__")


def keras_cnn(tf):
    """Trains Keras's example of a convolutional network on random pictures instead of MNIST's, by tf.keras."""
    import numpy as np

    names = ["datasets", "models", "layers", "backend", "utils", "losses", "optimizers"]
    sys.modules.update({"keras": tf.keras, **{f"keras.{name}": getattr(tf.keras, name) for name in names}})
    random = np.random.RandomState(0)
    pictures = random.randint(0, 256, [10_000, 28, 28]).astype(np.uint8), random.randint(0, 10, 10_000)
    tf.keras.datasets.mnist.load_data = lambda: (pictures, pictures)
    runpy.run_path("examples/mnist_cnn.py", run_name="__main__")


def wide_deep(tf):
    """Trains the census model of the official models on made rows, 40 at a time, by the canned Estimator."""
    import numpy as np

    for name in ("official", "official.utils", "official.utils.flags", "official.utils.flags.core"):
        sys.modules[name] = types.ModuleType(name)  # what reads the command line is not used
    sys.modules["official.utils.flags"].core = sys.modules["official.utils.flags.core"]
    sys.path.insert(0, "official/r1/wide_deep")
    import census_dataset

    random = np.random.RandomState(0)
    words = {
        "workclass": ["Private", "State-gov", "?"], "education": ["Bachelors", "HS-grad", "11th", "Masters"],
        "marital_status": ["Divorced", "Widowed", "Separated"], "relationship": ["Husband", "Wife", "Unmarried"],
        "occupation": [f"occupation{i}" for i in range(14)], "income_bracket": ["<=50K", ">50K"],
    }  # fmt: skip
    columns = [
        random.choice(words.get(name, list(map(str, range(90)))), 20_000) for name in census_dataset._CSV_COLUMNS
    ]
    Path("rows.csv").write_text("".join(",".join(row) + "\n" for row in zip(*columns)), "utf-8")
    wide, deep = census_dataset.build_model_columns()
    tf.estimator.DNNLinearCombinedClassifier(
        linear_feature_columns=wide, dnn_feature_columns=deep, dnn_hidden_units=[100, 75, 50, 25]
    ).train(lambda: census_dataset.input_fn("rows.csv", None, True, 40))


PROGRAMS = {
    "gcn": Program("tkipf+gcn", "gcn/train.py", "gcn", ["--early_stopping=1000"], 200),
    "cnn-text": Program("dennybritz+cnn-text-classification-tf", "train.py"),
    "char-rnn": Program("sherjilozair+char-rnn-tensorflow", "train.py", steps=80),
    "sparse-gat": Program("PetarV-+GAT", "execute_cora_sparse.py"),
    "bert-tiny": Program("google-research+bert", bert, steps=40),
    "dcgan": Program("carpedm20+DCGAN-tensorflow", dcgan, steps=60),
    "nmt": Program("tensorflow+nmt", nmt, steps=30),
    "pix2pix": Program("affinelayer+pix2pix-tensorflow", pix2pix, steps=20),
    "word2vec": Program("aymericdamien+TensorFlow-Examples", word2vec, steps=300),
    "ddpg": Program("MorvanZhou+Reinforcement-learning-with-tensorflow", ddpg, steps=1000),
    "keras-cnn": Program("keras-team+keras-2.2.4", keras_cnn, steps=60),
    "wide-deep": Program("tensorflow+models", wide_deep, steps=600),
}


def run_here(program, source):
    """Runs a program until it has made its steps, and prints the seconds of one."""
    import tensorflow as tf

    os.chdir(os.path.join(source, program.folder))
    sys.path[:0] = [os.getcwd(), source]
    times = collections.defaultdict(list)
    run, fit = tf.Session.run, tf.keras.Model.fit

    def took(kind, seconds):
        times[kind].append(seconds)
        if len(times[kind]) == program.steps and sum(times[kind][1:]) == max(sum(each[1:]) for each in times.values()):
            sys.stdout.flush()
            sys.__stdout__.write(f"\n{statistics.median(times[kind][program.steps // 2 :])!r}\n")
            sys.__stdout__.flush()
            os._exit(0)  # the rest of the program is not measured

    def timed(session, fetches, *args, **kwargs):
        if threading.current_thread() is not threading.main_thread():  # a queue runner
            return run(session, fetches, *args, **kwargs)
        begin = time.perf_counter()
        found = run(session, fetches, *args, **kwargs)
        took(str(fetches), time.perf_counter() - begin)
        return found

    class Batches(tf.keras.callbacks.Callback):
        """The time of each batch of Keras, whose steps do not go through Session.run."""

        def on_batch_begin(self, batch, logs=None):
            self.begin = time.perf_counter()

        def on_batch_end(self, batch, logs=None):
            took("batch", time.perf_counter() - self.begin)

    tf.Session.run = timed
    tf.keras.Model.fit = lambda model, *args, **kwargs: fit(model, *args, callbacks=[Batches()], **kwargs)
    if callable(program.script):
        program.script(tf)
    else:
        sys.argv = [os.path.join(source, program.script), *program.arguments]
        runpy.run_path(sys.argv[0], run_name="__main__")
    raise SystemExit(f"the program has ended before its {program.steps} steps")


# ---- the comparison -----------------------------------------------------------------------------------------------


def step_of(name: str, sources: Path, command: list[str], env: dict[str, str]) -> float:
    """The seconds of a program's step in a process of its own, in a copy of its checkout."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "source"
        subprocess.run(["cp", "-r", sources / PROGRAMS[name].repository, source], check=True)
        done = subprocess.run(
            [*command, __file__, "--here", name, str(source)], env=env, cwd=folder, capture_output=True, text=True,
            timeout=900, check=False,
        )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"{name} with {command} failed:\n{done.stdout[-1000:]}\n{done.stderr[-3000:]}")
    return float(done.stdout.split()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", type=Path)
    parser.add_argument("--tensorflow1", help="a Python with TensorFlow 1.15.5")
    parser.add_argument("--tensorflow2", help="a Python with a current TensorFlow")
    parser.add_argument("--shim", help="a folder whose package tensorflow is tensorflow.compat.v1")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("programs", nargs="*", metavar="PROGRAM")
    args = parser.parse_intermixed_args()
    unknown = set(args.programs) - set(PROGRAMS)
    if unknown:
        parser.error(f"unknown programs {sorted(unknown)}; there are {', '.join(PROGRAMS)}")
    env = {name: value for name, value in os.environ.items() if not name.startswith("OPENBLAS_")}
    env["CUDA_VISIBLE_DEVICES"] = ""
    targets = {"tfmini": ([sys.executable, "-m", "tfmini", "run"], env)}
    if args.tensorflow1:
        targets["tensorflow1"] = ([args.tensorflow1], env)
    if args.tensorflow2:
        path = os.pathsep.join(filter(None, [args.shim, env.get("PYTHONPATH")]))
        targets["tensorflow2"] = ([args.tensorflow2], {**env, "PYTHONPATH": path})
    print(
        f"| program | {' | '.join(f'{name} (ms)' for name in targets)} | ratios |\n|---|{'---:|' * (len(targets) + 1)}"
    )
    for name in args.programs or PROGRAMS:
        found = collections.defaultdict(list)
        try:
            for _ in range(args.rounds):
                for target, (command, its) in targets.items():
                    found[target].append(1e3 * step_of(name, args.sources.resolve(), command, its))
        except RuntimeError as error:  # the others are measured all the same
            print(error, file=sys.stderr, flush=True)
            continue
        middle = {target: statistics.median(each) for target, each in found.items()}
        ratios = ", ".join(f"{middle['tfmini'] / middle[target]:.2f}" for target in list(targets)[1:])
        print(f"| {name} | {' | '.join(f'{each:.2f}' for each in middle.values())} | {ratios} |", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--here"]:
        run_here(PROGRAMS[sys.argv[2]], sys.argv[3])
    main()
