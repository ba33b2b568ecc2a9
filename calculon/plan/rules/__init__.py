"""What makes an execution valid: one file per axis or subject, one form of rule."""
