"""Access control that every listener shares: accounts, signatures, permissions (docs/acl.md)."""
