"""The HTTP endpoint of agents, and the service that trains on what agents outside do."""
