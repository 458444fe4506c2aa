"""Values and rules without I/O: nothing here knows MQTT, files or hardware."""
