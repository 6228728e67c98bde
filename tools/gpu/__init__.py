"""What only a GPU can show, in one command: ``tools/gpu_checks``.

- `prepare`: the folder that travels to a machine without a network: photographs, packed, and wheels.
- `command`: runs the parts, each in a process of its own.
- `report`: what the parts found, as JSON and as a table.
- `setting`: what a part is given.
- `photographs`: those of the folder, several times over.
- `pytests`: runs of pytest, as rows of a report.
- `child`: the process of a part.
- `parts`: what is looked at.
"""
