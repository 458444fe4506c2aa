"""What travels: topics, envelopes, bodies, and the bus that carries them."""
