"""What jobs cost, and how often their scaler is mistaken."""
