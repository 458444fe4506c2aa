"""Who is who at a site: keys, and the signed list of peers."""
