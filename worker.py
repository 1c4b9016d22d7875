"""`python worker.py` from a checkout: serve the task queue of `mainspring.yaml`."""

from mainspring.worker import main

if __name__ == "__main__":
    main()
