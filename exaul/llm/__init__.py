"""Language models: endpoints, scores of their answers, judges and dialogues."""
