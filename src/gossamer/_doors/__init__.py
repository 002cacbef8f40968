"""What people call: wrap an optimizer, simulate, average."""
