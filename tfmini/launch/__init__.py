"""What starts the tasks of a cluster: on this machine, or by an engine such as MPI, Slurm, Ray or Kubernetes."""
