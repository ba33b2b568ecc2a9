"""Files that start a deployment: scripts, docker compose, Kubernetes objects, values of llm-d and Dynamo.

=====================  =============================================================================
``engine_images``      container images of the engines, their options for prefill/decode and for several nodes
``workers``            equal replicas that do the same work, and the words of their commands
``compose_file``       ``compose.yaml`` for one machine
``kubernetes_files``   Deployment, StatefulSet or LeaderWorkerSet, with their Services
``operator_files``     values of the llm-d chart, and a DynamoGraphDeployment
``manifest_text``      YAML of these files
=====================  =============================================================================

All texts of users (names of checkpoints) are words of lists, never parts of shell text.
"""
