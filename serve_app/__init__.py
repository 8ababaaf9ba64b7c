"""The shell around warmturn's decisions: Serve deployments, HTTP, and the local command."""
